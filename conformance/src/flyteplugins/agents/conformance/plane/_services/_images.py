# ruff: noqa: ARG002 - the signatures are the protocol's

"""Images. There are none: workers run in the plane's own Python, so nothing has to be built."""

from __future__ import annotations

from typing import Any

from connectrpc.request import RequestContext
from flyteidl2.imagebuilder import definition_pb2, payload_pb2
from flyteidl2.imagebuilder.service_connect import ImageService

Context = RequestContext[Any, Any]


class Images(ImageService):
    """The service that clients ask whether an image is built yet."""

    async def get_image(self, request: payload_pb2.GetImageRequest, ctx: Context) -> payload_pb2.GetImageResponse:
        """Any image is there, under a name that no registry has."""
        image = definition_pb2.Image(id=request.id, fqin=f"plane.invalid/{request.id.name}")
        return payload_pb2.GetImageResponse(image=image)
