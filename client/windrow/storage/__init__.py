"""Storage beyond local folders: S3, Google Cloud Storage, Azure, web servers.

`urls` needs only the standard library. The rest needs the extra `storage`, and loads it with the first store.
"""
