"""The hardware catalogue: names, instances, slices, custom parts, refusals."""

from typing import Any

import pytest

from api_schemas.hardware import GpuSpec, Hardware
from service.tuning.errors import InvalidRequest, TuningError, UnknownGpu
from service.tuning.hardware.catalogue import (
    all_gpus,
    figure_sources,
    find_gpu,
    gpu_aliases,
    gpu_entry,
    instances,
    resolve_hardware,
)
from service.tuning.hardware.spec import Node


def node(gpu: str, **fields: Any) -> Node:  # noqa: ANN401 - any field of Hardware
    return resolve_hardware(Hardware(gpu=gpu, **fields))[0]


def rules(gpu: str, **fields: Any) -> list[str]:  # noqa: ANN401 - any field of Hardware
    return [finding.rule for finding in resolve_hardware(Hardware(gpu=gpu, **fields))[1]]


def custom(**fields: Any) -> GpuSpec:  # noqa: ANN401 - any field of GpuSpec
    given = {
        "memory_gib": 64.0,
        "bandwidth_gb_s": 2000.0,
        "bf16_tflops": 400.0,
        "compute_capability": "9.0",
    }
    return GpuSpec(**{**given, **fields})


def test_the_catalogue_is_broad() -> None:
    """At least forty accelerators are known."""
    assert len(all_gpus()) >= 40


def test_every_figure_names_a_known_source() -> None:
    """No number stands without a source that the catalogue explains."""
    sources = figure_sources()

    for gpu in all_gpus():
        for name, figure in gpu_entry(gpu.name).figures.items():
            assert figure.source in sources, (gpu.name, name)


def test_only_memory_read_from_a_driver_counts_as_verified() -> None:
    """A total derived from a vendor's capacity is never passed off as read."""
    for gpu in all_gpus():
        read = gpu_entry(gpu.name).figures["memory_gib"].source in {"driver", "driver-log"}
        assert gpu.memory_is_verified == read, gpu.name


def test_figures_are_plausible() -> None:
    """Rates are positive, the driver reports about what the vendor states, peaks never fall."""
    for gpu in all_gpus():
        assert gpu.bandwidth_gb_s > 0, gpu.name
        assert gpu.dense_16bit_tflops > 0, gpu.name
        assert gpu.pcie_gb_s > 0, gpu.name
        if gpu.memory_gb_vendor is not None and not gpu.unified_memory:
            assert 0.89 * gpu.memory_gb_vendor < gpu.memory_gib < 1.04 * gpu.memory_gb_vendor
        if gpu.fp8_tflops is not None:
            assert gpu.fp8_tflops >= gpu.dense_16bit_tflops, gpu.name


def test_every_spelling_leads_to_its_part() -> None:
    """Each name, driver name and alias resolves to a part with that memory class or better."""
    for gpu in all_gpus():
        assert find_gpu(gpu.name) == gpu
        for alias in gpu_aliases(gpu.name):
            assert find_gpu(alias).name, alias


def test_every_instance_resolves() -> None:
    """An instance name gives the part, the count and the host memory."""
    for item in instances():
        resolved = node(item.name)

        assert resolved.gpu.name == item.gpu
        assert resolved.gpus_per_node == item.gpus
        assert resolved.host_memory_gib == item.host_memory_gib


@pytest.mark.parametrize(
    ("spelling", "part"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("H100 80GB SXM", "H100-SXM5-80GB"),
        ("h100", "H100-SXM5-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("a100", "A100-SXM4-80GB"),
        ("A100 40GB", "A100-SXM4-40GB"),
        ("A800 80GB", "A800-SXM4-80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("rtx4090", "RTX-4090"),
        ("RTX 4090 48GB", "RTX-4090-48GB"),
        ("RTX 3090 24GB", "RTX-3090"),
        ("RTX 3090 24GB (Windows/WSL2)", "RTX-3090"),
        ("RTX 3090 (sm_86)", "RTX-3090"),
        ("RTX 5060 Ti", "RTX-5060-Ti-16GB"),
        ("NVIDIA L4", "L4"),
        ("L40S 48GB", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-Blackwell-Server"),
        ("RTX PRO 6000 Blackwell 96GB (WSL2)", "RTX-PRO-6000-Blackwell-Server"),
        ("AMD Instinct MI300X", "MI300X"),
        ("H20 141GB", "H20-141GB"),
        ("GH200 96GB", "GH200-96GB"),
        ("DGX Spark (GB10)", "GB10"),
        ("Jetson Orin NX 16GB", "Jetson-Orin-NX-16GB"),
        ("Radeon 8060S (gfx1151, 128 GB unified)", "Radeon-8060S"),
        ("ml.g5.12xlarge", "A10G"),
        ("Standard_ND96isr_H100_v5", "H100-SXM5-80GB"),
        ("a2-ultragpu-8g", "A100-SXM4-80GB"),
    ],
)
def test_spellings_people_use(spelling: str, part: str) -> None:
    """What drivers print, vendors write and people type leads to the same part."""
    assert find_gpu(spelling).name == part


def test_a_name_that_fits_several_parts_says_so() -> None:
    """The commonest part is assumed, and a note names the others."""
    resolved, findings = resolve_hardware(Hardware(gpu="A100 80GB"))

    assert resolved.gpu.name == "A100-SXM4-80GB"
    assert [finding.severity for finding in findings] == ["note"]
    assert findings[0].rule == "HW001"
    assert "A100-PCIe-80GB" in findings[0].message


def test_other_statements_settle_an_ambiguous_name() -> None:
    """Memory or link that only one of the parts has picks that part, without a note."""
    assert node("a100", total_memory_gib=39.39).gpu.name == "A100-SXM4-40GB"
    assert node("H100 80GB", gpus_per_node=2, interconnect="pcie").gpu.name == "H100-PCIe-80GB"
    assert rules("H100 80GB", gpus_per_node=2, interconnect="pcie") == []


@pytest.mark.parametrize(
    "name", ["H1000", "24GB class", "RTX 3090 24GB + RTX 3070 8GB", "H100 24GB"]
)
def test_an_unknown_name_is_refused(name: str) -> None:
    """No default stands in for a part that is not known; the refusal names the field."""
    with pytest.raises(UnknownGpu) as refusal:
        resolve_hardware(Hardware(gpu=name))

    assert refusal.value.pointer == "/hardware/gpu"


def test_a_near_name_is_offered() -> None:
    """A slip of the pen is answered with the part that was probably meant."""
    with pytest.raises(UnknownGpu, match="RTX-4090"):
        find_gpu("RTX 4091")


def test_a_stated_count_wins_over_the_instance() -> None:
    """Fewer GPUs than the instance has is a choice; more is a contradiction."""
    assert node("p5.48xlarge").gpus_per_node == 8
    assert node("p5.48xlarge", gpus_per_node=4).gpus_per_node == 4
    with pytest.raises(InvalidRequest, match=r"p5\.48xlarge has 8") as refusal:
        node("p5.48xlarge", gpus_per_node=16)
    assert refusal.value.pointer == "/hardware/gpus_per_node"


def test_a_count_in_the_name() -> None:
    """`8x H100` means eight GPUs, a contradicting count is refused, `GB10 x2` is two machines."""
    assert node("8x H100 SXM").gpus_per_node == 8
    assert (node("GB10 x2").gpus_per_node, node("GB10 x2").nodes) == (1, 2)
    with pytest.raises(InvalidRequest):
        node("8x H100 SXM", gpus_per_node=4)


@pytest.mark.parametrize(
    ("gpu", "count", "link"),
    [
        ("H100 SXM", 1, "none"),
        ("H100 SXM", 8, "nvlink"),
        ("H100 PCIe", 2, "pcie"),
        ("RTX 3090", 2, "pcie"),
        ("L40S", 4, "pcie"),
        ("MI300X", 8, "xgmi"),
        ("Gaudi 3", 8, "pcie"),
    ],
)
def test_the_link_follows_from_the_part(gpu: str, count: int, link: str) -> None:
    """Linked boards use their link, bridges must be stated, one GPU needs none."""
    assert node(gpu, gpus_per_node=count).interconnect == link


def test_a_link_that_a_part_lacks_is_not_believed() -> None:
    """NVLink on a part without it becomes PCIe, with a warning; a bridge is believed."""
    assert node("L40S", gpus_per_node=2, interconnect="nvlink").interconnect == "pcie"
    assert rules("L40S", gpus_per_node=2, interconnect="nvlink") == ["HW002"]
    assert node("RTX 3090", gpus_per_node=2, interconnect="nvlink").interconnect == "nvlink"


def test_stated_memory_wins() -> None:
    """The caller's driver total replaces the catalogue's; a strange one is remarked."""
    assert node("RTX 5090", total_memory_gib=31.84).total_memory_gib == 31.84
    assert rules("RTX 5090", total_memory_gib=31.84) == []
    assert rules("RTX 5090", total_memory_gib=16.0) == ["HW003"]


def test_used_memory_must_leave_something() -> None:
    """A GPU that others hold completely cannot serve."""
    with pytest.raises(InvalidRequest) as refusal:
        node("L4", used_memory_gib=22.0)

    assert refusal.value.pointer == "/hardware/used_memory_gib"


@pytest.mark.parametrize(
    ("name", "memory_gib", "compute_share"),
    [
        ("A100-80GB MIG 3g.40gb", 39.3, 3 / 7),
        ("H100 80GB SXM 1g.10gb", 9.6, 1 / 7),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4.8, 1 / 7),
        ("H200 MIG 2g.35gb", 34.4, 2 / 7),
        ("H100 NVL 1g.12gb", 11.3, 1 / 7),
        ("A30 MIG 2g.12gb", 11.7, 2 / 4),
        ("A100 80GB 7g.80gb", 79.2, 1.0),
    ],
)
def test_a_slice_has_its_share(name: str, memory_gib: float, compute_share: float) -> None:
    """A MIG slice gets its share of memory and compute, and no NVLink."""
    gpu = find_gpu(name)
    whole = find_gpu(name.removesuffix(name.rsplit(maxsplit=1)[-1]).removesuffix("MIG "))

    assert gpu.memory_gib == pytest.approx(memory_gib, abs=0.2)
    assert gpu.dense_16bit_tflops == pytest.approx(whole.dense_16bit_tflops * compute_share)
    assert gpu.link_gb_s == 0
    assert not gpu.memory_is_verified
    assert gpu_entry(name).name == whole.name


@pytest.mark.parametrize("name", ["A100 80GB 1g.99gb", "H100 8g.80gb", "RTX 4090 1g.3gb"])
def test_a_slice_that_a_part_cannot_have_is_refused(name: str) -> None:
    """A profile that does not cut the part in whole slices is unknown."""
    with pytest.raises(UnknownGpu, match="MIG"):
        find_gpu(name)


def test_slices_share_only_pcie() -> None:
    """Several slices have no NVLink between them."""
    assert node("H100 SXM 3g.40gb", gpus_per_node=2).interconnect == "pcie"


def test_a_spec_describes_a_missing_part() -> None:
    """A part that no catalogue holds works from its own figures alone."""
    gpu = node("Mystery 64", spec=custom()).gpu

    assert gpu.is_custom
    assert (gpu.memory_gib, gpu.bandwidth_gb_s, gpu.bf16_tflops) == (64.0, 2000.0, 400.0)
    assert gpu.fp8_tflops is None
    assert (gpu.arch, gpu.vendor, gpu.compute_capability) == ("Hopper", "nvidia", (9, 0))


def test_a_spec_wins_over_the_name() -> None:
    """When both are given the figures come from the spec and the class from the known part."""
    gpu = node("RTX 4090", spec=custom(memory_gib=48.0)).gpu

    assert (gpu.memory_gib, gpu.is_custom, gpu.gpu_class) == (48.0, True, "consumer")


def test_an_old_custom_part_has_no_bf16() -> None:
    """Below compute capability 8.0 the 16-bit peak is fp16 only."""
    gpu = node("Old", spec=custom(compute_capability="7.5")).gpu

    assert (gpu.bf16_tflops, gpu.fp16_tflops) == (None, 400.0)


def test_another_vendors_custom_part_has_no_capability() -> None:
    """0.0 says that CUDA's capability does not apply."""
    gpu = node("Other", spec=custom(compute_capability="0.0", link_gb_s=100.0)).gpu

    assert (gpu.vendor, gpu.compute_capability) == ("other", None)


def test_the_cpu_has_its_hosts_memory() -> None:
    """The memory of the CPU backend is that of the host."""
    resolved = node("cpu", host_memory_gib=512.0)

    assert resolved.total_memory_gib == 512.0
    assert resolved.gpu.gpu_class == "cpu"


def test_findings_say_what_to_do() -> None:
    """Every finding carries a suggestion and a source."""
    for gpu, fields in (
        ("a100", {}),
        ("L40S", {"gpus_per_node": 2, "interconnect": "nvlink"}),
        ("L4", {"total_memory_gib": 40.0}),
    ):
        for finding in resolve_hardware(Hardware(gpu=gpu, **fields))[1]:
            assert finding.suggestion
            assert finding.source


def test_refusals_are_tuning_errors() -> None:
    """Whatever is wrong with the hardware is the core's own refusal."""
    with pytest.raises(TuningError):
        node("nothing like it")
