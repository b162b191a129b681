#!/usr/bin/env bash
# Path of a Chromium: TANDEM_BROWSER, one that is there, or Debian's, which only root can install.
set -euo pipefail
found() {
    echo "${TANDEM_BROWSER:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}"
}
if [ -z "$(found)" ]; then
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >&2
fi
found
