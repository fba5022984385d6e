# bash completion for hotcell

_hotcell()
{
    local cur prev verb word index options values
    cur=${COMP_WORDS[COMP_CWORD]}
    prev=${COMP_WORDS[COMP_CWORD - 1]}
    verb=${COMP_WORDS[1]}
    COMPREPLY=()

    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'run languages doctor config version help --help --version' -- "$cur")
        return
    fi
    case $verb in
    run) ;;
    help)
        mapfile -t COMPREPLY < <(compgen -W 'run languages doctor config version help' -- "$cur")
        return
        ;;
    *)
        options='--help'
        case $verb in
        languages) options='--json --names --config --help' ;;
        doctor | config) options='--json --config --help' ;;
        version) options='--json --help' ;;
        esac
        if [[ $prev == --config ]]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        else
            mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        fi
        return
        ;;
    esac

    # Options end at the first operand; after it, and after --, there are only files and words.
    index=2
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
            --stdin | --network | --image | --collect | --collect-to | --config)
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
    --cpu-shares | --inodes | --files-open | -c | --code | --shell | --entry | --collect) return ;;
    --env)
        mapfile -t COMPREPLY < <(compgen -v -- "$cur")
        return
        ;;
    --collect-to | --mount)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
    --file | --stdin | --request | --config)
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
            -v --verbose --config -h --help'
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

complete -o filenames -o bashdefault -F _hotcell hotcell
