#!/usr/bin/env bash
# Runs the tests that need no serving stack on every supported Python, with the oldest wrapt of both
# majors and the newest. Environments are made once, in .venv-compat. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONS=${PYTHONS:-3.11 3.12}
WRAPTS=${WRAPTS:-1.17.0 2.0.0 newest}
TESTS="tests/unit tests/lifecycle tests/commands"

# find_python VERSION: print an interpreter of that version.
find_python() {
    local version=$1 variable=PYTHON${1/./_} candidate
    for candidate in "${!variable:-}" "python$version" \
        "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
        if [ -n "$candidate" ] && "$candidate" -c \
            "import sys; raise SystemExit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    printf 'Python %s was not found: name it with %s=/path/to/python%s.\n' \
        "$version" "$variable" "$version" >&2
    return 1
}

# make_environment DIRECTORY PYTHON WRAPT: once per set of requirements.
make_environment() {
    local directory=$1 wrapt="==$3" key
    [ "$3" = newest ] && wrapt="<3,!=2.2.0"
    key=$(cat requirements/compat.txt setup.cfg pyproject.toml | sha256sum)
    [ "$(cat "$directory/.stamp" 2>/dev/null)" = "$key" ] && return 0
    printf 'set-up: %s ...\n' "$directory" >&2
    rm -rf "$directory"
    "$2" -m venv "$directory"
    local pip=("$directory/bin/python" -m pip --disable-pip-version-check install --quiet)
    "${pip[@]}" -r requirements/compat.txt "wrapt$wrapt"
    "${pip[@]}" --no-deps --no-build-isolation -e .
    printf '%s' "$key" >"$directory/.stamp"
}

failed=0
summary=""
for version in $PYTHONS; do
    python=$(find_python "$version")
    for wrapt in $WRAPTS; do
        directory=.venv-compat/py$version-wrapt$wrapt
        make_environment "$directory" "$python" "$wrapt"
        name=$("$directory/bin/python" -c \
            'import platform, wrapt; print(f"Python {platform.python_version()}, wrapt {wrapt.__version__}")')
        printf '\n== %s\n' "$name"
        outcome=passed
        # shellcheck disable=SC2086
        "$directory/bin/python" -m pytest -q -n 2 --dist loadfile -m "not stack and not long" \
            $TESTS "$@" || { outcome=FAILED failed=1; }
        summary+="$name: $outcome"$'\n'
    done
done
printf '\n%s' "$summary"
exit "$failed"
