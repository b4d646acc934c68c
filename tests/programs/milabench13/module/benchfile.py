from milabench.pack import Package


class Module(Package):
    main_script = "bench"


__pack__ = Module
