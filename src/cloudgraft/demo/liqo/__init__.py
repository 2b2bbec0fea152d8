"""The demo of remote clusters as nodes: real discovery, engine and driver, and a fake Liqo on small API servers."""
