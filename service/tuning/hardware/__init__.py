"""Hardware: accelerators, links, nodes, and the catalogue that names them."""
