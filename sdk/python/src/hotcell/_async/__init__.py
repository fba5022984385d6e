"""The client with asyncio. Written by hand; `_sync` is made from it by tools of the source tree."""
