#!/bin/sh
echo "prepared $* $FLAVOUR in $(pwd)"
exit "${EXIT_CODE:-0}"
