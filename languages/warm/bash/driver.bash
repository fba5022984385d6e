# Bash, booted and waiting: `bash main.sh` with this as BASH_ENV, which Bash reads when it has started and before it opens main.sh. It waits for
# the program (src/cell/warm.h), sets its arguments, and ends; then Bash itself opens main.sh and runs it.
#
# What always holds: no variable is left behind, and nothing was looked up or forked. Where a cold start would find something that was not
# prepared for, Bash is exec'ed again, which is what a cold start does.
unset BASH_ENV LD_PRELOAD HOTCELL_WARM
mapfile -d '' -t hotcell </.hotcell/program
[[ ${hotcell[2]} == "$PWD" && ${hotcell[3]} == /bin/bash && ${hotcell[4]} == main.sh ]] || : </.hotcell/cold
# Variables of the program's own are Bash's to read when it starts: some have a meaning, some cannot be set.
for hotcell_word in "${hotcell[@]:3+hotcell[0]:hotcell[1]}"; do
    hotcell_name=${hotcell_word%%=*}
    [[ $hotcell_name == [A-Za-z_]* && $hotcell_name != *[!A-Za-z0-9_]* && -v $hotcell_name &&
        ${!hotcell_name} == "${hotcell_word#*=}" ]] || : </.hotcell/cold
done
# BASH_ARGV is made of the arguments that Bash was started with.
if ((hotcell[0] > 2)); then
    mapfile hotcell_word <main.sh
    [[ ${hotcell_word[*]} != *BASH_ARG* ]] || : </.hotcell/cold
fi
set -- "${hotcell[@]:5:hotcell[0]-2}"
unset hotcell hotcell_name hotcell_word
SECONDS=0
: /bin/bash
