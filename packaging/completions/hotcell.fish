# fish completion for hotcell

complete -c hotcell -f

set -l verbs run languages doctor config version help

complete -c hotcell -n __fish_use_subcommand -a run -d 'run code or a command in a fresh cell'
complete -c hotcell -n __fish_use_subcommand -a languages -d 'list the languages'
complete -c hotcell -n __fish_use_subcommand -a doctor -d 'check what this machine enforces'
complete -c hotcell -n __fish_use_subcommand -a config -d 'show the configuration in force'
complete -c hotcell -n __fish_use_subcommand -a version -d 'print the version'
complete -c hotcell -n __fish_use_subcommand -a help -d 'explain a verb and its options'
complete -c hotcell -n '__fish_seen_subcommand_from help' -a "$verbs"

complete -c hotcell -n '__fish_seen_subcommand_from run languages doctor config version' -l help -s h -d 'show the help'
complete -c hotcell -n '__fish_seen_subcommand_from run languages doctor config version' -l json -d 'as JSON'
complete -c hotcell -n '__fish_seen_subcommand_from run languages doctor config' -l config -r -F -d 'a configuration file'
complete -c hotcell -n '__fish_seen_subcommand_from languages' -l names -d 'the names alone'

function __hotcell_run
    complete -c hotcell -n '__fish_seen_subcommand_from run' $argv
end

__hotcell_run -F
__hotcell_run -s c -l code -x -d 'run this text'
__hotcell_run -s l -l language -x -a '(hotcell languages --names 2>/dev/null)' -d 'the language'
__hotcell_run -l entry -r -F -d 'start this one of the files'
__hotcell_run -l shell -x -d 'run this command line with sh'
__hotcell_run -l request -r -F -d 'take a whole request from this JSON file'
__hotcell_run -l timeout -x -a '1 5 30 2m' -d 'end the run after this time by the clock'
__hotcell_run -l cpu-time -x -a '1 5 30 2m' -d 'end it after this much CPU time'
__hotcell_run -l memory -x -a '64m 256m 512m 1g' -d 'memory of all its processes'
__hotcell_run -l swap -x -a '0 64m 256m' -d 'swap on top of the memory'
__hotcell_run -l cpus -x -a '0.5 1 2' -d 'how many CPUs'
__hotcell_run -l cpu-shares -x -d 'its share when CPUs are scarce'
__hotcell_run -l pids -x -a '20 100 500' -d 'processes and threads at one time'
__hotcell_run -l output -x -a '64k 1m 16m' -d 'bytes of stdout, and of stderr'
__hotcell_run -l disk -x -a '50m 100m 1g' -d 'bytes in all the files it writes'
__hotcell_run -l inodes -x -d 'files and folders it may make'
__hotcell_run -l files-open -x -d 'files each process may have open'
__hotcell_run -l env -x -a '(set -nx)' -d 'set a variable, or pass one on'
__hotcell_run -l file -r -F -d 'put a file or a folder into the working directory'
__hotcell_run -l mount -r -F -d 'show a folder of this machine'
__hotcell_run -l stdin -r -F -d 'its standard input'
__hotcell_run -l read-only -d 'whether the root filesystem is read-only'
__hotcell_run -l network -x -a none -d 'a network policy'
__hotcell_run -l image -x -a host -d 'a root filesystem'
__hotcell_run -l allow-weak -d 'run where not every layer is enforced'
__hotcell_run -l collect -x -d 'bring back the files that match'
__hotcell_run -l collect-to -r -F -d 'write them below this folder'
__hotcell_run -l force -d 'let them replace files that exist'
__hotcell_run -s q -l quiet -d 'say nothing about how it ended'
__hotcell_run -s v -l verbose -d 'say what it used'

functions -e __hotcell_run
