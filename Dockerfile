# The demo, for docker-compose.yml: a real TRL run of a tiny model on the CPU. Never built where it was written, which
# has no Docker engine; that its context is enough to install from is tested (tests/test_deploy.py).
FROM python:3.12.11-slim-bookworm

LABEL org.opencontainers.image.title="rlexporter-demo" \
      org.opencontainers.image.description="A tiny model, trained with TRL on the CPU, and served to Prometheus by rlexporter." \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.source="https://github.com/rlexporter/rlexporter" \
      org.opencontainers.image.licenses="Apache-2.0"

# The CPU build of torch has an index of its own; from PyPI it would bring several gigabytes of CUDA.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH"

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY rlexporter rlexporter
RUN pip install --no-cache-dir ".[demo]" && useradd --create-home --uid 10001 demo

USER 10001:10001
WORKDIR /home/demo
ENV PYTHONUNBUFFERED=1 RLEXPORTER_LISTEN_HOST=0.0.0.0
EXPOSE 9750
ENTRYPOINT ["rlexporter"]
CMD ["demo", "--steps", "1000000"]
