
# What is left of the line up to the cursor in words; bash itself would part them at = and : too.
_attnd()
{
    local line=${COMP_LINE:0:COMP_POINT} words cur command word flag= operand= kind value
    local -A flags=()
    COMPREPLY=()
    read -ra words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=("")
    cur=${words[-1]}
    command=serve
    if ((${#words[@]} > 2)) && [[ ${words[1]} != -* ]]; then command=${words[1]}; fi

    # "PATH [--json] [--url URL]": the operand, and flags with what they take. Options are the table's.
    local arguments=${_attnd_commands[$command]-}
    for word in ${arguments//[][]/ ; }; do
        case $word in
        ";") flag= ;;
        OPTIONS) for word in "${!_attnd_flags[@]}"; do flags[$word]=${_attnd_flags[$word]}; done ;;
        --*) flag=$word flags[$word]= ;;
        *) if [[ $flag ]]; then flags[$flag]=$word; else operand=$word; fi ;;
        esac
    done

    local before=${words[-2]}
    if ((${#words[@]} == 2)) && [[ $cur != -*=* ]]; then
        _attnd_offer "$cur" "${!_attnd_commands[@]}" "${!flags[@]}"
    elif ((${#words[@]} > 2)) && [[ ${flags[$before]-} ]]; then
        _attnd_value "${flags[$before]}" "" "$cur"
    elif [[ $cur == --*=* ]]; then
        flag=${cur%%=*}
        _attnd_value "${flags[$flag]-}" "$flag=" "${cur#*=}"
    elif [[ $cur == -* ]]; then
        _attnd_offer "$cur" "${!flags[@]}" --help
    else
        _attnd_value "$operand" "" "$cur"
    fi
}

# WORD CANDIDATE...: those that begin with the word, without what bash does not take for a part of it.
_attnd_offer()
{
    local cur=$1 head= candidate
    shift
    [[ $COMP_WORDBREAKS != *=* ]] || head=${cur%"${cur##*[=:]}"}
    for candidate; do
        [[ $candidate != "$cur"* ]] || COMPREPLY+=("${candidate#"$head"}")
    done
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}

# KIND HEAD VALUE: what may stand where VALUE does, behind HEAD.
_attnd_value()
{
    local kind=$1 head=$2 value=$3 files=
    case $kind in
    KEY=VALUE)
        local key=${value%%=*}
        if [[ $value != *=* ]]; then
            _attnd_offer "$head$value" "${_attnd_keys[@]/#/$head}"
        elif [[ $key == *_file ]]; then
            head+=$key= value=${value#*=} files=-f
        else
            local -a values
            read -ra values <<<"${_attnd_values[$key]-}"
            _attnd_offer "$head$value" "${values[@]/#/$head$key=}"
        fi
        ;;
    *NAME=*)
        [[ $value != *=* ]] || head+=${value%%=*}= value=${value#*=}
        files=-f
        ;;
    FILE | PATH) files=-f ;;
    DIR) files=-d ;;
    esac
    [[ $files ]] || return
    compopt -o filenames 2>/dev/null
    local -a found
    mapfile -t found < <(compgen $files -- "$value")
    [[ ${#found[@]} -eq 0 ]] || _attnd_offer "$head$value" "${found[@]/#/$head}"
}

complete -F _attnd attnd
