"""Entry for spark-submit, which takes a file: `spark-submit analysis/failover/job.py TRACES OUT`."""

import sys

from regnum_failover.__main__ import main

sys.exit(main())
