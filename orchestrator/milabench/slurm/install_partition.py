"""Lets install and prepare run in a partition of Slurm, where a login node has no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from milabench.config.schema import SlurmConfig
from milabench.errors import Unreachable, UsageError
from milabench.execute.interrupts import interrupts
from milabench.redaction import mask, mask_argument
from milabench.slurm.script import resource_options
from milabench.slurm.srun import srun_environment
from milabench.workflow.context import read_suite_only
from milabench.workflow.options import Session, SuiteOptions


def run_in_install_partition(options: SuiteOptions, session: Session) -> int | None:
    """Run this command line as a job of `slurm.install_partition`, and return its exit code. None where it is to run here.

    Inside of a job it is: there it is that job. Raises ConfigError, UsageError for a secret among the arguments, which the
    processes of two machines would show, and Unreachable without srun.
    """
    system = read_suite_only(options).system
    partition = system.slurm.install_partition
    if system.engine != "slurm" or not partition or "SLURM_JOB_ID" in options.environ:
        return None
    arguments = sys.argv[1:]
    if any(mask(mask_argument(word)) != word for word in arguments):
        raise UsageError(
            f"a secret among the arguments would be shown on the nodes of partition {partition}. Put it into a variable, and"
            " ${oc.env:VARIABLE} in its place"
        )
    if shutil.which("srun") is None:
        raise Unreachable(
            f"system.slurm.install_partition: {partition}: no srun on PATH. Run this where Slurm's commands are"
        )
    # One node, whatever the run asks for; whom it is charged to stays.
    kept = SlurmConfig(
        partition=partition, account=system.slurm.account, qos=system.slurm.qos, nodes=1, exclusive=False
    )
    resources = resource_options(kept)
    session.info(f"slurm: {arguments[0]} runs in partition {partition}")
    command = ["srun", *resources, "--ntasks=1", "--job-name=mb-install", sys.executable, "-m", "milabench", *arguments]
    with interrupts().deferred():
        process = subprocess.Popen(command, env=srun_environment(os.environ), stdin=subprocess.DEVNULL)
        with interrupts().forwarded_to(process.send_signal):
            code = process.wait()
    return code if code >= 0 else 128 - code
