# Sourced by scripts/run, scripts/test and scripts/bench: an environment with the project installed.
#
#   use_environment FOLDER [EXTRAS] [PIP-ARGUMENT…]
#   add_extras EXTRAS
#
# The first sets ENVIRONMENT, and installs again when the sources changed.
#
# The caller defines `say TEXT` and `give_up SENTENCE LOG`.

use_environment() {
    ENVIRONMENT=$1
    if is_up_to_date "$@"; then
        say "$ENVIRONMENT is up to date"
    else
        make_environment
        install_project "${2:-}" "${@:3}"
        wanted "$@" >"$ENVIRONMENT/installed"
    fi
}

# What an environment of these arguments is made of: when any of it changes, it is installed again.
wanted() {
    echo "$(fingerprint) $* $(constraints_of "${@:3}" | cksum)"
}

# The same arguments as use_environment.
is_up_to_date() {
    [ "$(cat "$1/installed" 2>/dev/null)" = "$(wanted "$@")" ] &&
        "$1/bin/hyperbloom" --version >/dev/null 2>&1
}

# add_extras EXTRAS: what they need, into ENVIRONMENT. The project in it stays as it is, so programs
# that run out of it are not disturbed.
add_extras() {
    local log="$ENVIRONMENT/install.log"
    "$ENVIRONMENT/bin/python" -m pip install --disable-pip-version-check "$(compiling)" \
        "$(echo "$ENVIRONMENT"/wheels/hyperbloom-*.whl)[$1]" >"$log" 2>&1 ||
        give_up "the extras $1 could not be installed; is there a way to a package index?" "$log"
    wanted "$ENVIRONMENT" "$1" >"$ENVIRONMENT/installed"
}

# The sources.
fingerprint() {
    find setup.cfg pyproject.toml hyperbloom twisted_plugins -type f \
        ! -path '*/__pycache__/*' ! -name dropin.cache | LC_ALL=C sort | xargs cksum | cksum
}

# constraints_of PIP-ARGUMENT…: what stands in the files that are given to pip.
constraints_of() {
    local argument
    for argument; do
        [ -f "$argument" ] && cat "$argument"
    done
    return 0
}

make_environment() {
    "$ENVIRONMENT/bin/python" -c '' 2>/dev/null && return
    local python
    python=$(find_python) || give_up \
        "Python 3.11 or later with its venv module is needed and not found; install it (on Debian: python3 python3-venv), or name one: PYTHON=python3.12 $0" \
        /dev/null
    say "making $ENVIRONMENT with $python"
    rm -rf "$ENVIRONMENT"
    mkdir -p "$(dirname "$ENVIRONMENT")"
    "$python" -m venv "$ENVIRONMENT"
}

find_python() {
    local python
    for python in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then
            echo "$python"
            return
        fi
    done
    return 1
}

install_project() {
    local log="$ENVIRONMENT/install.log" extras=${1:+[$1]}
    say "installing the project and what it needs (some seconds; it downloads packages once)"
    local python="$PWD/$ENVIRONMENT/bin/python" wheels="$ENVIRONMENT/wheels"
    # The build's own files stay out of the source folder. The settings hold for this build alone: a
    # dependency that is built with them would leave its files where the project's wheel takes them.
    printf '[build]\nbuild_base = %s\n[egg_info]\negg_base = %s\n' \
        "$PWD/$ENVIRONMENT/build" "$PWD/$ENVIRONMENT" >"$ENVIRONMENT/build.cfg"
    rm -rf "$ENVIRONMENT/build" "$ENVIRONMENT/installed" "$wheels"
    {
        DIST_EXTRA_CONFIG="$PWD/$ENVIRONMENT/build.cfg" "$python" -m pip wheel \
            --disable-pip-version-check --no-deps --wheel-dir "$wheels" . &&
            "$python" -m pip uninstall --disable-pip-version-check --yes hyperbloom &&
            "$python" -m pip install --disable-pip-version-check --upgrade "$(compiling)" \
                "$(echo "$wheels"/hyperbloom-*.whl)$extras" "${@:2}"
    } >"$log" 2>&1 ||
        give_up "the project could not be installed; is there a way to a package index?" "$log"
}

# What is imported is compiled then, and kept: pip would compile every file of Spark and pandas.
# Where nothing may be kept, pip does it all the same.
compiling() {
    [ -z "${PYTHONDONTWRITEBYTECODE:-}" ] && echo --no-compile || echo --compile
}

# The extras for exports by Spark: with a Java of their own where it would find none.
spark_extras() {
    local java version
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
        version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || continue
        if [ "${version:-0}" -ge 17 ]; then
            echo export,demo,spark
            return
        fi
    done
    echo export,demo,spark,java
}
