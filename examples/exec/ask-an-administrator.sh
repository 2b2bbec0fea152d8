#!/usr/bin/env bash
# The slowest cloud of all: create writes to an administrator, who sets a machine up by hand, in an hour or a week.
# Until then the machine is pending. A request is a directory below $ASK_HOME; the administrator says in it
#   touch NAME/ready     the machine runs, and its node is to carry the providerID byhand://NAME
#   rm -r NAME           the machine is no more, as NAME/remove asks for
set -euo pipefail
tell() { # subject, text: by mail, if there is a program for it
  echo "$2" | ${ASK_MAIL:-mail -s "$1" "${ASK_ADDRESS:-root}"} >&2 || echo "no mail was sent; see $ASK_HOME" >&2
}

machine() { # directory
  local name state=pending
  name=$(basename "$1")
  [ ! -e "$1/ready" ] || state=running
  [ ! -e "$1/remove" ] || state=deleting
  printf '{"machineID": "%s", "name": "%s", "providerID": "byhand://%s", "state": "%s", "tags": %s}' \
    "$name" "$name" "$name" "$state" "$(cat "$1/tags")"
}

mkdir -p "$ASK_HOME"
case "$CLOUDGRAFT_OPERATION" in
  create)
    request="$ASK_HOME/$CLOUDGRAFT_NAME"
    if [ ! -e "$request" ]; then # a second create of the same name is the same request
      draft=$(mktemp -d "$ASK_HOME/.draft-XXXXXX")
      echo "$CLOUDGRAFT_TAGS" >"$draft/tags"
      cat "$CLOUDGRAFT_USER_DATA_FILE" >"$draft/user-data"
      mv -T "$draft" "$request" 2>/dev/null || rm -r "$draft" # another create of that name was quicker
    fi
    if [ ! -e "$request/told" ]; then # rather twice than never
      tell "a machine, please" "Set up $CLOUDGRAFT_NAME with $request/user-data, then: touch $request/ready"
      touch "$request/told"
    fi
    echo "{\"machine\": $(machine "$request")}" ;;
  delete)
    request="$ASK_HOME/$CLOUDGRAFT_NAME"
    if [ -e "$request" ] && [ ! -e "$request/remove" ]; then
      touch "$request/remove"
      tell "a machine less, please" "Take $CLOUDGRAFT_NAME down, then: rm -r $request"
    fi ;;
  list)
    echo '{"machines": ['
    for request in "$ASK_HOME"/*/; do
      [ -e "$request/tags" ] || continue
      echo "${comma:-}$(machine "${request%/}")" && comma=,
    done
    echo ']}' ;;
esac
