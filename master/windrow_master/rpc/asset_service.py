"""AssetService: the registry of data assets and models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import asset_service_pb2 as pb
from windrow.rpc.v1 import asset_service_pb2_grpc

from windrow_master.assets import AssetRefused, Assets, message_of
from windrow_master.identity.principals import caller
from windrow_master.rpc.page_tokens import numbers_of
from windrow_master.rpc.refusals import CODES, Context
from windrow_master.store.errors import StorePostponed
from windrow_master.threads import Kind, in_thread

PAGE, PAGE_MAX = 100, 1000
T = TypeVar("T")


class AssetService(asset_service_pb2_grpc.AssetServiceServicer):
    """Turns messages into calls of the registry, and its rows into messages."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    async def CreateAsset(self, request: pb.CreateAssetRequest, context: Context) -> pb.CreateAssetResponse:
        """Register a version of an asset; answered when it is durable."""
        row = await _carried_out(context, self._assets.create, request.asset, caller().submits_to)
        return pb.CreateAssetResponse(asset=message_of(row))

    async def GetAsset(self, request: pb.GetAssetRequest, context: Context) -> pb.GetAssetResponse:
        """Return one version of an asset."""
        row = await _carried_out(context, self._assets.find, request.kind, request.name, request.version)
        return pb.GetAssetResponse(asset=message_of(row))

    async def ListAssets(self, request: pb.ListAssetsRequest, context: Context) -> pb.ListAssetsResponse:
        """Return a page of assets, newest first."""
        size = min(request.page_size or PAGE, PAGE_MAX)
        numbers = await numbers_of(request.page_token, context)
        before = numbers[0] if numbers else None
        found = await _carried_out(context, self._assets.page, request.kind, request.name, size + 1, before)
        response = pb.ListAssetsResponse(assets=[message_of(row) for _, row in found[:size]])
        if len(found) > size:
            response.next_page_token = str(found[size - 1][0])
        return response


async def _carried_out(context: Context, work: Callable[..., T], *arguments: object) -> T:
    try:
        return await in_thread(work, *arguments, kind=Kind.DATASTORES)
    except AssetRefused as error:
        code = CODES.get(error.reason, grpc.StatusCode.FAILED_PRECONDITION)
        await errors.abort(context, code, error.reason, str(error))
    except StorePostponed as error:
        await errors.abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, errors.STORAGE_FULL, str(error))
