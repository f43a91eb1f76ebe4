"""The scripts by which shells complete command lines of `kwire`. They ask the program itself for the words."""

BASH = r"""# Completion of kwire for bash. To use it: source <(kwire completion bash)
_kwire() {
    local line current=${COMP_WORDS[COMP_CWORD]} files='' is_first=1
    # Bash divides --option=value into three words and completes the last of them.
    [[ $current == = ]] && current=''
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $is_first == 1 ]]; then
            files=$line is_first=0
            continue
        fi
        line=${line%%$'\t'*}
        [[ $line == --*=* ]] && line=${line#*=}
        COMPREPLY+=("$line")
    done < <("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ $files == files || $files == directories ]]; then
        local flag=-f
        [[ $files == directories ]] && flag=-d
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$flag" -- "$current")
        compopt -o filenames 2>/dev/null
    fi
    return 0
}
complete -F _kwire kwire
"""

ZSH = r"""#compdef kwire
# Completion of kwire for zsh. To use it: source <(kwire completion zsh), after compinit
_kwire() {
    local -a lines candidates
    local line
    lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${(@)lines[2,-1]}"; do
        [[ -n $line ]] || continue
        candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    (( ${#candidates} )) && _describe -V kwire candidates
    case ${lines[1]} in
        files) _files ;;
        directories) _files -/ ;;
    esac
}
if [[ ${funcstack[1]} == _kwire ]]; then
    _kwire "$@"
else
    compdef _kwire kwire
fi
"""

FISH = r"""# Completion of kwire for fish. To use it: kwire completion fish | source
function __kwire_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    for line in $lines[2..-1]
        echo $line
    end
    switch "$lines[1]"
        case files
            __fish_complete_path "$current"
        case directories
            __fish_complete_directories "$current"
    end
end
complete -c kwire -f -a '(__kwire_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
