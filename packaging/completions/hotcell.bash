# bash completion for hotcell

_hotcell_verbs='run sandbox shell cp volume serve mcp mcp-wrap tools languages doctor config history show why cancel stats key audit version help'

# hotcell sandbox and volume: what the second word takes, and the ids of sandboxes where one is meant.
_hotcell_sandbox()
{
    local options= words= place='--server --ca --key-file --state --config --json'
    local limits='--memory --swap --cpus --cpu-shares --pids --output --disk --inodes --files-open --timeout'
    case $1 in
    'sandbox create')
        options="$limits --idle-timeout --max-lifetime --recover -e --env --file --mount --volume --read-only --read-only=false
            --network --image --metadata" ;;
    'sandbox list' | 'sandbox ls') options='--status -q --ids' ;;
    'sandbox exec')
        options='-c --code -l --language --shell -s --session -i --interactive -e --env -w --cwd --timeout --output -d --detach
            --name -q --quiet -v --verbose' words=ids ;;
    'sandbox logs') options='-f --follow' words=ids ;;
    'sandbox rm' | 'sandbox delete') options='-a --all' words=ids ;;
    'sandbox inspect' | 'sandbox pause' | 'sandbox resume') words=ids ;;
    'sandbox cp' | cp) options='-q --quiet' words=files ;;
    shell) options='-a --attach -w --cwd -q --quiet' words=ids ;;
    'volume create') options='--size' ;;
    'volume list' | 'volume ls' | 'volume remove' | 'volume rm') ;;
    sandbox) place= words='create list inspect exec cp logs pause resume rm' ;;
    volume) place= words='create list remove' ;;
    esac
    case $prev in
    --status) mapfile -t COMPREPLY < <(compgen -W 'running paused failed stopping' -- "$cur"); return ;;
    -l | --language) mapfile -t COMPREPLY < <(compgen -W "$(hotcell languages --names 2>/dev/null)" -- "$cur"); return ;;
    --memory | --swap | --disk | --size) mapfile -t COMPREPLY < <(compgen -W '64m 256m 512m 1g' -- "$cur"); return ;;
    --config | --ca | --key-file | --file | --mount) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    --state) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    -e | --env) mapfile -t COMPREPLY < <(compgen -v -- "$cur"); return ;;
    --server | -c | --code | --shell | --session | -s | -w | --cwd | --name | --metadata | --volume | --attach | --timeout | \
        --idle-timeout | --max-lifetime | --output | --cpus | --cpu-shares | --pids | --inodes | --files-open) return ;;
    esac
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options $place -h --help" -- "$cur")
    elif [[ $words == ids ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(hotcell sandbox list --ids 2>/dev/null)" -- "$cur")
    elif [[ $words == files ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$cur"; compgen -W "$(hotcell sandbox list --ids 2>/dev/null)" -S : -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    fi
}

# The verbs other than run and help: options may stand anywhere.
_hotcell_other()
{
    local options= words= server='--server --ca --key-file'
    case $1 in
    serve) options='-l --listen --state --workspace --concurrent --allow-weak --check --config --json' ;;
    mcp) options="--private --allow-weak $server" ;;
    mcp-wrap) options='--timeout --cpu-time --memory --cpus --pids --disk --files-open --env --file --mount --allow-weak -q --quiet --config --' ;;
    tools) options='--format' ;;
    languages) options="--json --names --config $server" ;;
    doctor | config) options='--json --config' ;;
    history) options="--limit -l --language --status --before --errors --error-type --fingerprint --json --state --config $server" ;;
    show) options="--report --json --state --config $server" ;;
    cancel | stats | why) options="--json --state --config $server" ;;
    key)
        options='--runs-per-minute --concurrent --cpu-seconds-per-day --no-compile-cache --json --state --config'
        ((COMP_CWORD == index + 1)) && words='create list revoke'
        ;;
    audit)
        options='--kept --event --limit --json --state --config'
        ((COMP_CWORD == index + 1)) && words='verify list'
        ;;
    version) options='--json' ;;
    esac
    case $prev in
    --format) mapfile -t COMPREPLY < <(compgen -W 'json openai anthropic' -- "$cur") ;;
    --config | --ca | --key-file | --file | --mount) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    --state | --workspace) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    -l | --language)
        [[ $1 == history ]] && mapfile -t COMPREPLY < <(compgen -W "$(hotcell languages --names 2>/dev/null)" -- "$cur")
        ;;
    --status)
        mapfile -t COMPREPLY < <(compgen -W 'queued running completed error compile_error timeout oom output_limit pids_limit
            killed internal' -- "$cur")
        ;;
    --event)
        mapfile -t COMPREPLY < <(compgen -W 'mount_denied request_refused unauthorized limit_hit key_created key_revoked
            blocked_call isolation_weak server_started server_stopped warden_died gateway_died config_reloaded mcp_server_ended' -- "$cur")
        ;;
    --server | --listen | --limit | --before | --error-type | --fingerprint | --concurrent | --runs-per-minute | --cpu-seconds-per-day) ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$words $options -h --help" -- "$cur") ;;
    esac
}

_hotcell()
{
    local cur prev verb word index options values
    cur=${COMP_WORDS[COMP_CWORD]}
    prev=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()

    # A server may be named before the verb.
    index=1
    while ((index < COMP_CWORD)) && [[ ${COMP_WORDS[index]} == --server || ${COMP_WORDS[index]} == --ca ||
        ${COMP_WORDS[index]} == --key-file ]]; do
        index=$((index + 2))
    done
    if ((COMP_CWORD < index)); then
        [[ $prev != --server ]] && mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
    fi
    if ((COMP_CWORD == index)); then
        mapfile -t COMPREPLY < <(compgen -W "$_hotcell_verbs --help --version --server --ca --key-file" -- "$cur")
        return
    fi
    verb=${COMP_WORDS[index]}
    case $verb in
    run) ;;
    sandbox | volume)
        if ((COMP_CWORD > index + 1)); then
            _hotcell_sandbox "$verb ${COMP_WORDS[index + 1]}"
        else
            _hotcell_sandbox "$verb"
        fi
        return
        ;;
    shell | cp)
        _hotcell_sandbox "$verb"
        return
        ;;
    help)
        mapfile -t COMPREPLY < <(compgen -W "$_hotcell_verbs" -- "$cur")
        return
        ;;
    *)
        _hotcell_other "$verb"
        return
        ;;
    esac

    # Options end at the first operand; after it, and after --, there are only files and words.
    index=$((index + 1))
    while ((index < COMP_CWORD)); do
        word=${COMP_WORDS[index]}
        case $word in
        --)
            if ((COMP_CWORD == index + 1)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            fi
            return
            ;;
        -c | -l | --code | --language | --entry | --shell | --request | --timeout | --cpu-time | --memory | --swap | \
            --cpus | --cpu-shares | --pids | --output | --disk | --inodes | --files-open | --env | --file | --mount | \
            --stdin | --network | --image | --collect | --collect-to | --config | --server | --ca | --key-file)
            index=$((index + 2))
            ;;
        -*) index=$((index + 1)) ;;
        *)
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        esac
    done

    values=
    case $prev in
    -l | --language)
        values=$(hotcell languages --names 2>/dev/null)
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
        return
        ;;
    --timeout | --cpu-time) values='1 5 30 2m' ;;
    --memory | --swap | --disk) values='64m 256m 512m 1g' ;;
    --output) values='64k 1m 16m' ;;
    --cpus) values='0.5 1 2' ;;
    --pids) values='20 100 500' ;;
    --network) values='none' ;;
    --image) values='host' ;;
    --cpu-shares | --inodes | --files-open | -c | --code | --shell | --entry | --collect | --server) return ;;
    --env)
        mapfile -t COMPREPLY < <(compgen -v -- "$cur")
        return
        ;;
    --collect-to | --mount)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
    --file | --stdin | --request | --config | --ca | --key-file)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    esac
    if [[ -n $values ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
        return
    fi
    if [[ $cur == -* ]]; then
        options='-c --code -l --language --entry --shell --request --timeout --cpu-time --memory --swap --cpus
            --cpu-shares --pids --output --disk --inodes --files-open --env --file --mount --stdin --read-only
            --read-only=false --network --image --allow-weak --collect --collect-to --force --json -q --quiet
            -v --verbose --local --config --server --ca --key-file -h --help'
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

complete -o filenames -o bashdefault -F _hotcell hotcell
