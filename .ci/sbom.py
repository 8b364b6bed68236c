"""Write a bill of materials of requirements.lock, in CycloneDX: python .ci/sbom.py dist.

It lists every locked package with the SHA-256 of its files and the licence of its code; one that
is unknown or not allowed is an error. What wheels bundle stands in their own licence files. Nothing
depends on time, machine or Python: the same lock gives the same bytes.
"""

from __future__ import annotations

import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import metadata
from pathlib import Path

import yaml
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from license_expression import AND, OR, LicenseExpression, get_spdx_licensing
from packageurl import PackageURL
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

ROOT = Path(__file__).resolve().parents[1]
# One entry of a lock: name, version and marker.
PIN = re.compile(r"([\w.-]+)(?:\[.*?\])?==(\S+)(?: ; (.*?))? \\")
SPDX = get_spdx_licensing()
PERMISSIVE = "asks for its notice alone"
# What may be installed with an Apache-2.0 library that is used by anybody for anything, and why.
ALLOWED = {
    "0BSD": PERMISSIVE,
    "Apache-2.0": PERMISSIVE,
    "Apache-2.0 WITH LLVM-exception": PERMISSIVE,
    "Artistic-1.0-Perl": "text-unidecode, which Prefect brings: free as long as it is unaltered",
    "BSD-2-Clause": PERMISSIVE,
    "BSD-3-Clause": PERMISSIVE,
    "CC0-1.0": "asks for nothing",
    "CNRI-Python": "Python's own, of old",
    "ISC": PERMISSIVE,
    "MIT": PERMISSIVE,
    "MIT-0": "asks for nothing",
    "MIT-CMU": PERMISSIVE,
    "MPL-2.0": "binds who alters its files: we install them as they are",
    "PSF-2.0": "Python's own",
    "Zlib": PERMISSIVE,
}
CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
# Read in the licence files of packages whose metadata are vague ("BSD"), or that some systems lack.
STATED = {
    "Apache-2.0": "asttokens async-timeout tzdata xgboost",
    "Apache-2.0 OR BSD-3-Clause": "python-dateutil",
    "BSD-2-Clause": "locket nest-asyncio2 numba",
    "BSD-3-Clause": "appnope colorama comm contourpy cronsim cycler dask-ml jinja2"
    " jinja2-humanize-extension ipython-pygments-lexers jupyter-client kiwisolver multipledispatch"
    " nbclient nbformat partd prompt-toolkit protobuf scipy sparse traitlets zict",
    "Artistic-1.0-Perl OR GPL-1.0-or-later": "text-unidecode",
    "ISC": "requests-oauthlib",
    "MIT": "pendulum skops whenever",
    "PSF-2.0": "matplotlib pywin32",
}
STATED_OF = {name: licence for licence, names in STATED.items() for name in names.split()}


def find_licence(name: str) -> str:
    """Return a package's licence in SPDX's terms: as stated here, else by its metadata."""
    if name in STATED_OF:
        return STATED_OF[name]
    facts = metadata(name)
    with suppress(InvalidLicenseExpression):
        # Older packages have their licence's name, or all of its text, in the second field.
        expression = facts.get("License-Expression") or facts.get("License", "")
        return canonicalize_license_expression(expression)
    classifiers = [c for c in facts.get_all("Classifier", []) if c.startswith("License ::")]
    if len(classifiers) == 1 and classifiers[0] in CLASSIFIERS:
        return CLASSIFIERS[classifiers[0]]
    raise SystemExit(f"{name} does not say its licence clearly: read it, and add it to STATED.")


def is_allowed(licence: str) -> bool:
    """Return whether a licence is on the list: all of those joined by AND, any of those by OR."""

    def check(expression: LicenseExpression) -> bool:
        if isinstance(expression, AND):
            return all(map(check, expression.args))
        if isinstance(expression, OR):
            return any(map(check, expression.args))
        return str(expression) in ALLOWED

    return check(SPDX.parse(licence, validate=True))


def list_components(lock: str) -> Iterator[Component]:
    """Yield the packages of a lock."""
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        name, version, marker = PIN.match(entry).groups()
        licence = find_licence(name)
        if not is_allowed(licence):
            raise SystemExit(f"{name} is under {licence}: do without it, or add it to ALLOWED.")
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=f"{name}@{version}",
            purl=PackageURL("pypi", name=name, version=version),
            licenses=[LicenseFactory().make_from_string(licence)],
            hashes=[
                HashType(alg=HashAlgorithm.SHA_256, content=digest)
                for digest in re.findall(r"--hash=sha256:(\w+)", entry)
            ],
            properties=[Property(name="fairfrontier:marker", value=marker)] if marker else [],
        )


def main(folder: Path) -> None:
    """Write the bill of materials into a folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text()
    components = list(list_components(lock))
    released = yaml.safe_load((ROOT / "CITATION.cff").read_text())["date-released"]
    bom = Bom(components=components, serial_number=uuid.uuid5(uuid.NAMESPACE_OID, lock))
    bom.metadata.timestamp = datetime.combine(released, datetime.min.time(), UTC)
    bom.metadata.component = Component(
        name=project["name"],
        version=project["version"],
        type=ComponentType.LIBRARY,
        bom_ref=project["name"],
        purl=PackageURL("pypi", name=project["name"], version=project["version"]),
        licenses=[LicenseFactory().make_from_string(project["license"])],
    )
    bom.register_dependency(bom.metadata.component, components)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{project['name']}-{project['version']}.cdx.json"
    path.write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
