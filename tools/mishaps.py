"""Failures that a learner can cure, each told in one or two sentences: the cause, then the cure."""

import errno
import re
import sys

DISK_FULL = "The disk is full. Free about 2 GB in this folder and in the folder for temporary files, then run it again."
NOT_WRITABLE = "This folder cannot be written to. Copy the course to a folder of your own and run it there."
NO_NETWORK = "pip cannot reach its package index. Check the network (or the proxy), then run it again."
NO_TRUST = (
    "pip does not trust the certificate of its package index. A proxy may stand between: see pip's option --cert."
)

# What pip writes, and what it means; the first pattern that is found counts.
PIP_SAYS = [
    (r"No space left on device|not enough space on the disk|Disk quota exceeded", DISK_FULL),
    (r"CERTIFICATE_VERIFY_FAILED", NO_TRUST),
    (r"connection broken by|Failed to establish a new connection|Network is unreachable|timed out", NO_NETWORK),
    (r"Read-only file system|Permission denied|Access is denied", NOT_WRITABLE),
]
NO_RELEASE = r"No matching distribution found for ([\w.-]+)"


class Mishap(Exception):
    """A failure whose text is all that the learner needs to read."""


def explain_log(text: str) -> str | None:
    """Return what a failed pip's output means, None where it is not known."""
    for pattern, sentence in PIP_SAYS:
        if re.search(pattern, text):
            return sentence
    if missing := re.search(NO_RELEASE, text):
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"pip finds no {missing[1]} for Python {python} on this system. Another Python, or the network, may help."
        )
    return None


def explain_os_error(error: OSError) -> str:
    """Return what an error of the operating system means for the learner."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DISK_FULL
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{NOT_WRITABLE} ({error.filename})" if error.filename else NOT_WRITABLE
    return f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
