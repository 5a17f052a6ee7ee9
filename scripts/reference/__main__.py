"""``python -m scripts.reference``: write the pages, in a checkout."""

from __future__ import annotations

from pipelines.core.paths import CHECKOUT
from scripts.reference.pages import FOLDER, files, stale

if __name__ == "__main__":
    if CHECKOUT is None:
        raise SystemExit("docs are in a checkout alone, and this is installed from a wheel")
    for path in stale():
        path.unlink()
        print(f"removed {path}")
    made = files()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    print(f"{len(made)} pages in {FOLDER}")
