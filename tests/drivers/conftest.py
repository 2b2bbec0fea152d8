"""One moto and one proxy for all tests of Amazon's clouds: to start them takes longer than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from clouds.servers.aws_cloud import AwsCloud


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsCloud]:
    directory = tmp_path_factory.mktemp("aws")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):  # not those of whoever runs the tests
        os.environ[name] = str(directory / "none")
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    with AwsCloud(directory) as cloud:
        yield cloud
