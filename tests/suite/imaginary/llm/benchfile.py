"""A program that does not exist, in the source of a release: plans only."""

from milabench import Benchmark, Git

benchmark = Benchmark(
    source=Git("https://git.example/recipes.git", "0123456789abcdef0123456789abcdef01234567"),
    module="recipes",
    prepare=None,
    env={"RECIPES_CACHE": "off"},
)
