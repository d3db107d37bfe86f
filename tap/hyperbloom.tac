"""hyperbloom for who starts Twisted applications from files: `twistd -ny hyperbloom.tac`.

The node is the one that HYPERBLOOM_CONFIG names, else that of /etc/hyperbloom/hyperbloom.toml. The
same as `twistd hyperbloom -c FILE`, but for the log: here it is twistd's, of every level. Add other
services to `application` to run them in the same process.
"""

import os

from twisted.application.service import Application

from hyperbloom.tap import Options, makeService

options = Options()
options.parseOptions(
    ["-c", os.environ.get("HYPERBLOOM_CONFIG", "/etc/hyperbloom/hyperbloom.toml")]
)

application = Application("hyperbloom")
makeService(options).setServiceParent(application)
