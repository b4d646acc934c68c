#!/bin/sh
#SBATCH --parsable
#SBATCH --no-requeue
#SBATCH --job-name=mb-k3v9-s1
#SBATCH --comment=k3v9
#SBATCH --output=/runs/r/jobs/s1.out.%a
#SBATCH --open-mode=append
#SBATCH --nodes=1
case "$SLURM_ARRAY_TASK_ID" in
0) set -- s1 ;;
1) set -- s2 ;;
2) set -- 's 3' ;;
esac
exec '/opt/my env/bin/python' -m milabench job --run '/runs/a $(b) '"'"'c'"'"'' --share "$1"
