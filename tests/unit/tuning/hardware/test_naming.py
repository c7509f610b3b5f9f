"""Laws of names: how they are written does not matter, and no text breaks the look-up."""

from hypothesis import given
from hypothesis import strategies as st

from api_schemas.hardware import Hardware
from service.tuning.errors import TuningError
from service.tuning.hardware.catalogue import all_gpus, find_gpu, gpu_entry, resolve_hardware
from service.tuning.hardware.parts import ambiguous_names

PARTS = [gpu.name for gpu in all_gpus()]
PIECES = ["8x", "NVIDIA", "H100", "A100", "MIG", "3g.40gb", "80GB", "(", ")", "p5.48xlarge", "x2"]


@given(
    name=st.sampled_from(PARTS),
    separator=st.sampled_from([" ", "-", "_", "  "]),
    prefix=st.sampled_from(["", "NVIDIA ", "nvidia-", "Tesla ", "AMD "]),
    is_upper=st.booleans(),
)
def test_spelling_does_not_matter(name: str, separator: str, prefix: str, is_upper: bool) -> None:  # noqa: FBT001
    """Case, separators and a vendor's prefix lead to the same part."""
    text = prefix + name.replace("-", separator)

    assert find_gpu(text.upper() if is_upper else text.lower()).name == name


@given(text=st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join))
def test_no_text_breaks_the_look_up(text: str) -> None:
    """Whatever is written, the answer is a node or the core's own refusal."""
    try:
        node, _ = resolve_hardware(Hardware(gpu=text or "x"))
    except TuningError:
        return

    assert node.total_memory_gib > 0
    assert node.num_gpus >= 1


def test_the_size_that_a_part_has_may_be_named() -> None:
    """A part's own capacity after its name changes nothing."""
    for gpu in all_gpus():
        size_gb = gpu.memory_gb_vendor
        if size_gb is not None and "GB" not in gpu.name.split("-")[-1]:
            assert find_gpu(f"{gpu.name} {size_gb:.0f}GB").name == gpu.name


def test_an_ambiguous_name_covers_parts_of_one_make() -> None:
    """What a vague name may mean differs in form or memory, not in vendor."""
    for name, parts in ambiguous_names().items():
        assert len({gpu_entry(part).vendor for part in parts}) == 1, name
