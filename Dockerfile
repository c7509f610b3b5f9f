# syntax=docker/dockerfile:1
# Targets: `api` (the service) and `worker` (on top of an image that has vLLM, on GPUs or a CPU).
ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG VLLM_IMAGE=vllm/vllm-openai:v0.33.0

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY api_schemas api_schemas
COPY service service
COPY workers workers
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements-runtime.lock ./
RUN python -m venv /opt/setpoint \
    && /opt/setpoint/bin/pip install --no-cache-dir --require-hashes -r requirements-runtime.lock
COPY --from=wheel /wheels /wheels
COPY examples/requests/llama-3.1-8b-chat-h100.json /tmp/request.json
# The one recommendation compiles the scheduler simulation into the image.
RUN /opt/setpoint/bin/pip install --no-cache-dir --no-deps /wheels/*.whl \
    && /opt/setpoint/bin/setpoint recommend -f /tmp/request.json --json > /dev/null

FROM ${PYTHON_IMAGE} AS api
# PYTHONSAFEPATH keeps a stray folder named like one of our packages from shadowing it.
ENV PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PATH=/opt/setpoint/bin:$PATH \
    SETPOINT_HOST=0.0.0.0 SETPOINT_DATA_DIR=/var/lib/setpoint
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/setpoint setpoint
COPY --from=build /opt/setpoint /opt/setpoint
USER 10001
VOLUME /var/lib/setpoint
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
ENTRYPOINT ["setpoint"]
CMD ["serve", "--no-worker"]

FROM ${VLLM_IMAGE} AS worker
ENV PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 SETPOINT_DATA_DIR=/var/lib/setpoint
WORKDIR /src
COPY requirements-runtime.lock ./
# An environment of its own: vLLM's pins never meet the worker's. The `vllm` on the image's path is
# the one that it starts.
RUN python3 -m venv /opt/setpoint \
    && /opt/setpoint/bin/pip install --no-cache-dir --require-hashes -r requirements-runtime.lock
COPY --from=wheel /wheels /wheels
RUN /opt/setpoint/bin/pip install --no-cache-dir --no-deps /wheels/*.whl \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/setpoint setpoint
USER 10001
WORKDIR /var/lib/setpoint
VOLUME /var/lib/setpoint
# Healthy is a worker whose node has a live heartbeat in the store.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
    CMD ["/opt/setpoint/bin/python", "-m", "workers.health"]
ENTRYPOINT ["/opt/setpoint/bin/python", "-m", "workers"]
