"""The HTTP endpoint. The only package that imports fastapi and uvicorn."""
