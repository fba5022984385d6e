# A shell that keeps its state: bash -i -s LIBRARY <start.bash, with the door as fd 3. See src/cell/session_builtin.c.
set +o history +H +m
unset HISTFILE HISTSIZE HISTFILESIZE MAILCHECK PS1 PS2 PROMPT_COMMAND
enable -f "$1" hotcell_call || exit 127
set --
hotcell_call
