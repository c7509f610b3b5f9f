# syntax=docker/dockerfile:1
# Targets: `api` (the service) and `worker` (on top of an image that has vLLM).
ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG VLLM_IMAGE=vllm/vllm-openai:v0.33.0

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python -m venv /opt/setpoint
COPY requirements.lock ./
RUN /opt/setpoint/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY api_schemas api_schemas
COPY service service
COPY workers workers
COPY examples/requests/llama-3.1-8b-chat-h100.json /tmp/request.json
# The one recommendation compiles the scheduler simulation into the image.
RUN /opt/setpoint/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/setpoint/bin/setpoint recommend -f /tmp/request.json --json > /dev/null

FROM ${PYTHON_IMAGE} AS api
# PYTHONSAFEPATH keeps a stray folder named like one of our packages from shadowing it.
ENV PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PATH=/opt/setpoint/bin:$PATH \
    SETPOINT_HOST=0.0.0.0 SETPOINT_DATA_DIR=/var/lib/setpoint
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/setpoint setpoint
COPY --from=build /opt/setpoint /opt/setpoint
USER setpoint
VOLUME /var/lib/setpoint
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
ENTRYPOINT ["setpoint"]
CMD ["serve", "--no-worker"]

FROM ${VLLM_IMAGE} AS worker
ENV PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY api_schemas api_schemas
COPY service service
COPY workers workers
# An environment of its own: vLLM's pins never meet the worker's.
RUN python3 -m venv /opt/setpoint \
    && /opt/setpoint/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
    && /opt/setpoint/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/setpoint setpoint
USER setpoint
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["pgrep", "-f", "workers"]
ENTRYPOINT ["/opt/setpoint/bin/python", "-m", "workers"]
