# fish completion for hotcell

complete -c hotcell -f

set -l verbs run sandbox shell cp volume serve mcp mcp-wrap tools languages doctor config history show why cancel stats key audit version help

complete -c hotcell -n __fish_use_subcommand -a run -d 'run code or a command in a fresh cell'
complete -c hotcell -n __fish_use_subcommand -a sandbox -d 'make sandboxes that live on, and work in them'
complete -c hotcell -n __fish_use_subcommand -a shell -d 'a terminal in a sandbox'
complete -c hotcell -n __fish_use_subcommand -a cp -d 'copy files and folders into a sandbox and out of it'
complete -c hotcell -n __fish_use_subcommand -a volume -d 'folders that outlive sandboxes'
complete -c hotcell -n __fish_use_subcommand -a serve -d 'serve runs by HTTP'
complete -c hotcell -n __fish_use_subcommand -a mcp -d 'be an MCP server on stdin and stdout'
complete -c hotcell -n __fish_use_subcommand -a mcp-wrap -d 'run an MCP server in a cell'
complete -c hotcell -n __fish_use_subcommand -a tools -d 'print the tools for models'
complete -c hotcell -n __fish_use_subcommand -a languages -d 'list the languages'
complete -c hotcell -n __fish_use_subcommand -a doctor -d 'check what this machine enforces'
complete -c hotcell -n __fish_use_subcommand -a config -d 'show the configuration in force'
complete -c hotcell -n __fish_use_subcommand -a history -d 'list the runs of a server'
complete -c hotcell -n __fish_use_subcommand -a show -d 'show one run of a server'
complete -c hotcell -n __fish_use_subcommand -a why -d 'explain why a run failed'
complete -c hotcell -n __fish_use_subcommand -a cancel -d 'end a run of a server'
complete -c hotcell -n __fish_use_subcommand -a stats -d 'count what a server has run'
complete -c hotcell -n __fish_use_subcommand -a key -d 'make, list and revoke the keys of a server'
complete -c hotcell -n __fish_use_subcommand -a audit -d 'check and read the audit log of a server'
complete -c hotcell -n __fish_use_subcommand -a version -d 'print the version'
complete -c hotcell -n __fish_use_subcommand -a help -d 'explain a verb and its options'
complete -c hotcell -n '__fish_seen_subcommand_from help' -a "$verbs"

complete -c hotcell -n "__fish_seen_subcommand_from $verbs" -l help -s h -d 'show the help'
complete -c hotcell -n "__fish_seen_subcommand_from $verbs" -l json -d 'as JSON'
complete -c hotcell -n "__fish_seen_subcommand_from $verbs" -l config -r -F -d 'a configuration file'
complete -c hotcell -n '__fish_seen_subcommand_from languages' -l names -d 'the names alone'

set -l remote '__fish_use_subcommand; or __fish_seen_subcommand_from run mcp languages history show why cancel stats'
complete -c hotcell -n $remote -l server -x -d 'do it on this server'
complete -c hotcell -n $remote -l ca -r -F -d 'with https, trust the certificates in this file alone'
complete -c hotcell -n $remote -l key-file -r -F -d 'take the key of the server from this file'
complete -c hotcell -n '__fish_seen_subcommand_from serve history show why cancel stats key audit' -l state -r -F \
    -d 'the state folder of the server'

complete -c hotcell -n '__fish_seen_subcommand_from serve' -s l -l listen -x -d 'listen here and nowhere else'
complete -c hotcell -n '__fish_seen_subcommand_from serve' -l workspace -r -F -d 'what POST /execute keeps'
complete -c hotcell -n '__fish_seen_subcommand_from serve key' -l concurrent -x -d 'runs at one time'
complete -c hotcell -n '__fish_seen_subcommand_from mcp' -l private -d 'start a private server'
complete -c hotcell -n '__fish_seen_subcommand_from tools' -l format -x -a 'json openai anthropic' -d 'for whom'
for option in timeout cpu-time memory cpus pids disk files-open env
    complete -c hotcell -n '__fish_seen_subcommand_from mcp-wrap' -l $option -x
end
complete -c hotcell -n '__fish_seen_subcommand_from mcp-wrap' -l file -r -F -d 'a copy of a file or folder'
complete -c hotcell -n '__fish_seen_subcommand_from mcp-wrap' -l mount -r -F -d 'a folder of this machine'
complete -c hotcell -n '__fish_seen_subcommand_from mcp-wrap' -s q -l quiet -d 'say nothing about its end'
complete -c hotcell -n '__fish_seen_subcommand_from serve mcp mcp-wrap' -l allow-weak -d 'serve where not every layer is enforced'
complete -c hotcell -n '__fish_seen_subcommand_from serve' -l check -d 'check the configuration, start nothing'
complete -c hotcell -n '__fish_seen_subcommand_from history audit' -l limit -x -d 'at most so many'
complete -c hotcell -n '__fish_seen_subcommand_from history' -s l -l language -x -a '(hotcell languages --names 2>/dev/null)' \
    -d 'only runs in this language'
complete -c hotcell -n '__fish_seen_subcommand_from history' -l status -x -d 'only runs that ended so' \
    -a 'queued running completed error compile_error timeout oom output_limit pids_limit killed internal'
complete -c hotcell -n '__fish_seen_subcommand_from history' -l before -x -d 'only runs older than this one'
complete -c hotcell -n '__fish_seen_subcommand_from history' -l errors -d 'kinds of failures instead of runs'
complete -c hotcell -n '__fish_seen_subcommand_from history' -l error-type -x -d 'only failures of this type'
complete -c hotcell -n '__fish_seen_subcommand_from history' -l fingerprint -x -d 'only this kind of failure'
complete -c hotcell -n '__fish_seen_subcommand_from show' -l report -d 'everything that helps to find a fault'
complete -c hotcell -n '__fish_seen_subcommand_from key' -a 'create list revoke'
complete -c hotcell -n '__fish_seen_subcommand_from key' -l runs-per-minute -x -d 'runs that may begin in a minute'
complete -c hotcell -n '__fish_seen_subcommand_from key' -l cpu-seconds-per-day -x -d 'CPU time in a day'
complete -c hotcell -n '__fish_seen_subcommand_from key' -l no-compile-cache -d 'keep nothing that its runs compile'
complete -c hotcell -n '__fish_seen_subcommand_from audit' -a 'verify list'
complete -c hotcell -n '__fish_seen_subcommand_from audit' -l kept -x -d 'a last hash of an earlier time, which must be in the chain'
complete -c hotcell -n '__fish_seen_subcommand_from audit' -l event -x -d 'only such events' \
    -a 'mount_denied request_refused unauthorized limit_hit key_created key_revoked blocked_call isolation_weak server_started server_stopped warden_died gateway_died config_reloaded mcp_server_ended'

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
__hotcell_run -l local -d 'start a cell for this run, also where a server has one ready'

functions -e __hotcell_run

# Sandboxes: the words after the verb decide.
function __hotcell_act
    set -l words (commandline -opc)
    string match -q -- "* $argv *" "$words "
end

set -l acts create list ls inspect exec cp logs pause resume rm delete remove
complete -c hotcell -n "__hotcell_act sandbox; and not __fish_seen_subcommand_from $acts" -a 'create list inspect exec cp logs pause resume rm'
complete -c hotcell -n "__hotcell_act volume; and not __fish_seen_subcommand_from $acts" -a 'create list remove'
for verb in sandbox shell cp volume
    complete -c hotcell -n "__hotcell_act $verb" -l json -d 'as JSON'
    complete -c hotcell -n "__hotcell_act $verb" -l server -x -d 'do it on this server'
    complete -c hotcell -n "__hotcell_act $verb" -l ca -r -F -d 'trust the certificates in this file alone'
    complete -c hotcell -n "__hotcell_act $verb" -l key-file -r -F -d 'the key of the server'
    complete -c hotcell -n "__hotcell_act $verb" -l state -r -F -d 'the state folder of the server'
    complete -c hotcell -n "__hotcell_act $verb" -l config -r -F -d 'a configuration file'
    complete -c hotcell -n "__hotcell_act $verb" -s h -l help -d 'show the help'
end
for act in 'sandbox exec' 'sandbox logs' 'sandbox inspect' 'sandbox pause' 'sandbox resume' 'sandbox rm' 'sandbox delete' shell
    complete -c hotcell -n "__hotcell_act $act" -a '(hotcell sandbox list --ids 2>/dev/null)'
end
for act in cp 'sandbox cp'
    complete -c hotcell -n "__hotcell_act $act" -F -a '(hotcell sandbox list --ids 2>/dev/null)'
    complete -c hotcell -n "__hotcell_act $act" -s q -l quiet -d 'no progress'
end
for limit in memory swap cpus cpu-shares pids disk inodes files-open idle-timeout max-lifetime volume metadata network image
    complete -c hotcell -n '__hotcell_act sandbox create' -l $limit -x
end
for act in 'sandbox create' 'sandbox exec'
    complete -c hotcell -n "__hotcell_act $act" -s e -l env -x -a '(set -nx)' -d 'set a variable'
    complete -c hotcell -n "__hotcell_act $act" -l timeout -x -a '1 5 30 2m' -d 'end it after this time'
    complete -c hotcell -n "__hotcell_act $act" -l output -x -a '64k 1m' -d 'bytes of output'
end
complete -c hotcell -n '__hotcell_act sandbox create' -l recover -d 'if it dies, let a new one take its place'
complete -c hotcell -n '__hotcell_act sandbox create' -l file -r -F -d 'put a file or a folder into it'
complete -c hotcell -n '__hotcell_act sandbox create' -l mount -r -F -d 'show a folder of the machine'
complete -c hotcell -n '__hotcell_act sandbox create' -l read-only -d 'whether the root filesystem is read-only'
for act in 'sandbox list' 'sandbox ls'
    complete -c hotcell -n "__hotcell_act $act" -l status -x -a 'running paused failed stopping' -d 'only those in this state'
    complete -c hotcell -n "__hotcell_act $act" -s q -l ids -d 'the ids alone'
end
complete -c hotcell -n '__hotcell_act sandbox exec' -s c -l code -x -d 'run this text'
complete -c hotcell -n '__hotcell_act sandbox exec' -s l -l language -x -a '(hotcell languages --names 2>/dev/null)' -d 'the language'
complete -c hotcell -n '__hotcell_act sandbox exec' -l shell -x -d 'run this command line with sh'
complete -c hotcell -n '__hotcell_act sandbox exec' -s s -l session -x -d 'in this shell, which stays'
complete -c hotcell -n '__hotcell_act sandbox exec' -s i -l interactive -d 'pass stdin on'
complete -c hotcell -n '__hotcell_act sandbox exec' -s w -l cwd -x -d 'start in this folder'
complete -c hotcell -n '__hotcell_act sandbox exec' -s d -l detach -d 'leave it running'
complete -c hotcell -n '__hotcell_act sandbox exec' -l name -x -d 'a name for the job'
complete -c hotcell -n '__hotcell_act sandbox exec' -s q -l quiet -d 'say nothing about how it ended'
complete -c hotcell -n '__hotcell_act sandbox exec' -s v -l verbose -d 'say what it used'
complete -c hotcell -n '__hotcell_act sandbox logs' -s f -l follow -d 'until the job ends'
complete -c hotcell -n '__hotcell_act sandbox rm' -s a -l all -d 'all that you have'
complete -c hotcell -n '__hotcell_act shell' -s a -l attach -x -d 'take up this terminal'
complete -c hotcell -n '__hotcell_act shell' -s w -l cwd -x -d 'start in this folder'
complete -c hotcell -n '__hotcell_act volume create' -l size -x -a '512m 1g' -d 'how much it holds'
