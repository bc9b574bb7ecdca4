"""Packages of conda by the names that PyPI has for them.

Most names are the same in both. What is here differs, or is a library or program that PyPI does not have: wheels bring
such libraries along, so leaving them out is what a user wants, but they are told.
"""

from __future__ import annotations

_NAMES = {
    "black-jupyter": "black",
    "brotli-python": "brotli",
    "dask-core": "dask",
    "faiss": "faiss-cpu",
    "keras-gpu": "keras",
    "lightgbm-gpu": "lightgbm",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "numpy-base": "numpy",
    "onnxruntime-cpu": "onnxruntime",
    "opencv": "opencv-python-headless",
    "py-lightgbm": "lightgbm",
    "py-opencv": "opencv-python-headless",
    "py-xgboost": "xgboost",
    "py-xgboost-cpu": "xgboost",
    "py-xgboost-gpu": "xgboost",
    "pytables": "tables",
    "python-blosc": "blosc",
    "python-flatbuffers": "flatbuffers",
    "python-graphviz": "graphviz",
    "python-kaleido": "kaleido",
    "python-lmdb": "lmdb",
    "python-tzdata": "tzdata",
    "python-xxhash": "xxhash",
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "ruamel_yaml": "ruamel.yaml",
    "seaborn-base": "seaborn",
    "tensorflow-base": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-mkl": "tensorflow",
    "torchvision-cpu": "torchvision",
    "uvicorn-standard": "uvicorn",
}

_NO_TWIN = """
arrow-cpp blas boost-cpp bzip2 c-ares c-compiler ca-certificates conda conda-libmamba-solver cpuonly cudatoolkit
cudnn curl cxx-compiler ffmpeg fftw fontconfig fortran-compiler freetype geos gflags gfortran giflib git git-lfs
glib glog gmp gnutls gperftools grpc-cpp hdf5 icu jemalloc jpeg krb5 lame lcms2 lerc llvm-openmp lz4-c make mamba
mpc mpfr mpi mpich nccl ncurses netcdf4-c nettle nodejs nomkl openblas openh264 openjdk openjpeg openmpi openssl
orc pandoc parquet-cpp perl pixman pkg-config poppler proj python_abi pytorch-cuda pytorch-mutex r rdma-core re2
readline s2n snappy sqlite tbb tesseract thrift-cpp tini tk tzdata ucx unixodbc unzip utf8proc wget x264 x265 xz
yaml zlib zlib-ng zstd
"""
_LIBRARIES_OF_PYTHON = frozenset(
    ("aws-cdk-lib", "cuda-python", "libclang", "libcst", "libpysal", "librosa", "libsass", "libtmux", "libusb1")
)


def pypi_name(name: str) -> str | None:
    """The name that PyPI has for a package of conda; None where it has none: a library, a compiler, a program."""
    folded = name.casefold()
    if folded in _NAMES:
        return _NAMES[folded]
    if folded in _NO_TWIN.split():
        return None
    if _begins_without_twin(folded) and folded not in _LIBRARIES_OF_PYTHON:
        return None
    return folded


def _begins_without_twin(name: str) -> bool:
    """Families of names: conda's own (`_openmp_mutex`), C libraries (`libgcc-ng`), compilers, R."""
    if name.startswith("_"):
        return True
    prefixes = ("aws-c-", "aws-sdk-", "binutils", "cuda-", "gcc_", "gxx_", "kernel-headers", "ld_impl", "lib")
    return name.startswith((*prefixes, "r-", "sysroot_", "xorg-")) or name in ("gcc", "gxx", "aws-checksums")
