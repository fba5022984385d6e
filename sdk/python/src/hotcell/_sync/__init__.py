"""The client without asyncio. All but stream.py is made from `_async` by generate.py, and is not to be edited."""
