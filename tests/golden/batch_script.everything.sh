#!/bin/sh
#SBATCH --parsable
#SBATCH --no-requeue
#SBATCH --job-name=mb-k3v9-s1
#SBATCH --comment=k3v9
#SBATCH '--output=/runs/100%%j of it/s1.out'
#SBATCH --open-mode=append
#SBATCH --partition=gpu,long
#SBATCH --account=def-lab
#SBATCH --qos=high
#SBATCH --time=1-02:30:00
#SBATCH '--constraint=a100&nvlink'
#SBATCH --gpus-per-node=a100:4
#SBATCH --nodes=2
#SBATCH '--reservation=it'"'"'s ours'
#SBATCH '--nodelist=n[1-4]'
#SBATCH --exclude=n9
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --switches=1
#SBATCH '--licenses=a:1 # not a comment'
exec '/opt/my env/bin/python' -m milabench job --run '/runs/a $(b) '"'"'c'"'"'' --share s1
