"""What the production stack's chart makes of its values, as its template does.

After vllm-project/production-stack, helm/templates/deployment-vllm-multi.yaml.
"""

from api_schemas.base import Json


def chart_argv(values: dict[str, Json]) -> list[str]:
    """Return the command that the chart gives to the only model."""
    engine = values["servingEngineSpec"]
    (model,) = engine["modelSpec"]
    config = model["vllmConfig"]
    argv = ["vllm", "serve", model["modelURL"], "--host", "0.0.0.0"]
    argv += ["--port", str(engine["containerPort"])]
    if "enableChunkedPrefill" in config:
        no = "" if config["enableChunkedPrefill"] else "no-"
        argv.append(f"--{no}enable-chunked-prefill")
    no = "" if config.get("enablePrefixCaching") else "no-"
    argv.append(f"--{no}enable-prefix-caching")
    for key, flag in {
        "maxModelLen": "--max-model-len",
        "dtype": "--dtype",
        "tensorParallelSize": "--tensor-parallel-size",
        "maxNumSeqs": "--max-num-seqs",
    }.items():
        if key in config:
            argv += [flag, _printed(config[key])]
    return [*argv, *config.get("extraArgs", [])]


def _printed(value: Json) -> str:
    """Return a number as Helm prints it: read as a float, large ones get an exponent."""
    if isinstance(value, int) and abs(value) >= 1_000_000:
        return f"{float(value):g}"
    return str(value)
