import benchmate.cases as benchmark
from roberta import BenchRoBERTa


@benchmark.register(name='Sanity/Check')
def bench_sanity():
    """Function bench_sanity actually does nothing. It is just sanity check.
    """


@benchmark.register(name='RoBERTa/Baseline/{task}/{batch}',
                    task=['CoLA', 'MNLI'],
                    batch=[16, 32, 64, 128, 256, 512])
class BenchRoBERTaBaseline(BenchRoBERTa):
    """Class BenchRoBERTaBaseline is registered a benchmark with templated
    name. Its actual name will be determined in runtime. It renderrs template
    with substituting parameters (elements of both `task` and `batch`). The
    total number of benchmark cases to run is `len(taks) * len(batch) == 12`.
    """

    def setup(self):
        """Method setup does all required preparation for benchmarking code.
        For example, it can initialize model and optimizer or load and
        preprocess dataset. Variable `self` has attributes declared during
        benchmark registration (i.e. `task` and `batch`).
        """

    def run(self):
        """Method run fits a model defined in method `setup` to a dataset
        loaded in the same method. Actual benchmarking code have to be placed
        here.
        """

    def teardown(self):
        """Method teardown frees all required resources if necessary.
        """


if __name__ == '__main__':
    benchmark.main()
