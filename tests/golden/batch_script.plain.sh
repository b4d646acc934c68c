#!/bin/sh
#SBATCH --parsable
#SBATCH --no-requeue
#SBATCH --job-name=mb-k3v9-s1
#SBATCH --comment=k3v9
#SBATCH --output=/runs/r/jobs/s1.out
#SBATCH --open-mode=append
exec '/opt/my env/bin/python' -m milabench job --run '/runs/a $(b) '"'"'c'"'"'' --share s1
