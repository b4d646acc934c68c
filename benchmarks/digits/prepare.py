"""Check that the bundled images are there and whole; nothing is downloaded."""

from __future__ import annotations

from sklearn.datasets import load_digits

IMAGES, PIXEL_SUM = 1797, 561718


def main() -> None:
    images = load_digits().images
    if len(images) != IMAGES or int(images.sum()) != PIXEL_SUM:
        raise SystemExit("error: digits: scikit-learn's bundled images are not the expected ones; install it again")
    print(f"digits: {len(images)} images")


if __name__ == "__main__":
    main()
