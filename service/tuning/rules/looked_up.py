"""What is found while a request is looked up, described here so that each id has its page.

These are reported by the look-up of hardware and drafter, which knows the names that were given;
there is nothing left for a check of the finished configuration.
"""

from api_schemas.explanation import Source
from service.tuning.rules.base import Rule, says_nothing

_CATALOGUE = Source(title="Catalogue of accelerators", where="service/tuning/hardware/data")

RULES: tuple[Rule, ...] = (
    Rule(
        id="CAP012",
        title="The drafting model is not known",
        help="A second model for drafting takes memory for its weights and its cache. Without its"
        " config both are left out of the plan. Give it inline.",
        settings=("speculative_config",),
        severity="warning",
        source=(Source(title="Memory model", where="service/tuning/situation.py"),),
        check=says_nothing,
    ),
    Rule(
        id="HW001",
        title="The GPU's name fits several parts",
        help="Names such as A100 80GB stand for parts with different links and bandwidths. The"
        " commonest is assumed; the full catalogue name decides.",
        settings=(),
        severity="note",
        source=(_CATALOGUE,),
        check=says_nothing,
    ),
    Rule(
        id="HW002",
        title="The stated link is not known for this part",
        help="NVLink or xGMI is stated for a part that has none in the catalogue. PCIe is"
        " assumed unless hardware.spec gives the link's bandwidth.",
        settings=(),
        severity="warning",
        source=(_CATALOGUE,),
        check=says_nothing,
    ),
    Rule(
        id="HW003",
        title="The stated memory is far from the part's",
        help="More than a tenth off: name and memory may belong to different parts. The stated"
        " figure is used.",
        settings=(),
        severity="warning",
        source=(_CATALOGUE,),
        check=says_nothing,
    ),
)
