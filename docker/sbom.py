#!/usr/bin/python3
"""The list of parts (SPDX 2.3, JSON) of a program that links Debian's libraries, and their licences.

    sbom.py PROGRAM VERSION LICENCE PARTS LICENCES

Writes PARTS, and LICENCES: the texts that a copy of the program with its libraries, such as an image, has to
carry. LICENCE is the program's own. What is linked, and what that links in turn, is asked of the loader, and
which packages these are of dpkg.
"""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid

COMMON = "/usr/share/common-licenses/"  # where Debian keeps the texts that many packages name


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def libraries(program):
    """The files that the loader would map: "libz.so.1 => /lib/libz.so.1 (0x...)", the loader itself without arrow."""
    paths = re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", output("ldd", program), re.M)
    return sorted({os.path.realpath(path) for path in paths})


def package_of(path):
    """dpkg knows files by the path they were installed to, with /usr or without."""
    for name in (path, path.removeprefix("/usr"), "/usr" + path):
        found = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True).stdout
        owners = [line.split(": ")[0] for line in found.splitlines() if not line.startswith("diversion ")]
        if owners:
            return owners[0].split(",")[0]
    sys.exit(f"sbom.py: no package has {path}")


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def text(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def describe(package, files):
    form = "${Package}\n${Version}\n${Architecture}\n${source:Package}\n${source:Version}"
    name, version, arch, source, source_version = output("dpkg-query", "-W", "-f", form, package).split("\n")
    ref = re.sub("[^A-Za-z0-9.-]", "-", name)
    part = {
        "SPDXID": f"SPDXRef-{ref}",
        "name": name,
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "sourceInfo": f"{', '.join(files)}; built by Debian from {source} {source_version}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": f"LicenseRef-{ref}",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{name.replace('+', '%2B')}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={arch}",
        }],
    }
    licence = {
        "licenseId": f"LicenseRef-{ref}",
        "name": f"licences of {source}",
        "extractedText": text(f"/usr/share/doc/{name}/copyright"),
    }
    return part, licence


def main(program, version, own_licence, parts_path, licences_path):
    packages = {}
    for path in libraries(program):
        packages.setdefault(package_of(path), []).append(os.path.basename(path))
    described = [describe(package, files) for package, files in sorted(packages.items())]
    own = {
        "SPDXID": "SPDXRef-attnd",
        "name": "attnd",
        "versionInfo": version,
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256(program)}],
        "licenseConcluded": "MIT",
        "licenseDeclared": "MIT",
        "copyrightText": re.search("^Copyright.*", text(own_licence), re.M).group(),
        "primaryPackagePurpose": "APPLICATION",
    }
    parts = [own] + [part for part, _ in described]
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now().timestamp()))
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"attnd-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/attnd-{version}-{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(parts))}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: attnd-sbom.py"],
        },
        "packages": parts,
        "hasExtractedLicensingInfos": [licence for _, licence in described],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-attnd"},
            *({"spdxElementId": "SPDXRef-attnd", "relationshipType": "DYNAMIC_LINK", "relatedSpdxElement": part["SPDXID"]}
              for part, _ in described),
        ],
    }
    with open(parts_path, "w", encoding="utf-8") as f:
        json.dump(document, f, indent=1)
        f.write("\n")
    texts = [(f"attnd {version}", text(own_licence))]
    texts += [(f"{part['name']} {part['versionInfo']}", licence["extractedText"]) for part, licence in described]
    named = {name for _, its in texts for name in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", its)}
    texts += [(name, text(COMMON + name)) for name in sorted(named) if os.path.isfile(COMMON + name)]
    with open(licences_path, "w", encoding="utf-8") as f:
        f.write(f"\n{'-' * 80}\n".join(f"{title}\n\n{its}" for title, its in texts))


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
