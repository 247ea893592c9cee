"""A session policy: temporary keys that reach a table's folders and nothing else."""

import json
from collections.abc import Sequence

from endive.server.storage.folders import Folder

READING = ("s3:GetObject", "s3:GetObjectVersion")
WRITING = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")


def session_policy(folders: Sequence[Folder], writes: bool, partition: str = "aws") -> str:
    """Return the policy for AssumeRole. `partition`: `aws`, `aws-cn`, `aws-us-gov`.

    The keys can do what both the role and the policy allow.
    """
    arn = f"arn:{partition}:s3:::"
    objects = {
        "Effect": "Allow",
        "Action": [*READING, *(WRITING if writes else ())],
        "Resource": [f"{arn}{one.bucket}/{one.key}/*" for one in folders],
    }
    lists = [
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": [f"{arn}{one.bucket}"],
            "Condition": {"StringLike": {"s3:prefix": [f"{one.key}/*"]}},
        }
        for one in folders
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": [objects, *lists]}, separators=(",", ":"))
