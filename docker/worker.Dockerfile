# A worker: torch, Triton, a C/C++ compiler and Python.h, which Triton and torch.compile need.
# The base image holds the CUDA runtime; torch's wheel brings its own CUDA libraries.
ARG BASE=nvidia/cuda:12.8.1-base-ubuntu24.04

FROM ${BASE}
LABEL org.opencontainers.image.title="lossbench worker" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
       gcc g++ libc6-dev python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --no-create-home lossbench \
    && install -d -o lossbench -g lossbench /data
RUN python3 -m venv /opt/lossbench
ENV PATH=/opt/lossbench/bin:$PATH
# torch first and by itself: its layer, the largest, then outlives changes of lossbench
RUN pip install --no-cache-dir 'torch>=2.9'
RUN --mount=type=bind,target=/src,rw pip install --no-cache-dir '/src[worker]'
ENV PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 \
    LOSSBENCH_DATA_DIR=/data HOME=/data \
    TRITON_CACHE_DIR=/data/cache/triton TORCHINDUCTOR_CACHE_DIR=/data/cache/inductor
USER lossbench
WORKDIR /data
VOLUME /data
# A worker answers no requests: healthy is who holds its device's lock. Whether its heart beats the
# service judges, on the machines page.
COPY docker/worker_health.py /opt/lossbench/worker_health.py
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-I", "-S", "/opt/lossbench/worker_health.py"]
ENTRYPOINT ["lossbench"]
CMD ["worker"]
