"""Builds inert stand-ins for the CUDA libraries that the published torch wheel links to, so that it imports and runs on a
machine without a GPU and without the 3 GB of wheels that carry the real ones.

    cuda_stubs.py SITE_PACKAGES/torch/lib

Reads what the wheel's libraries leave undefined and assembles, beside them, one shared object per missing library. Every
function returns an error code, but for the few that torch calls even when it finds no device. Needs gcc and binutils.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

MISSING = re.compile(r"lib(cu|nccl|nv)")
# Which library an unversioned symbol belongs to: the longest prefix decides.
PREFIXES = {
    "cublasLt": "libcublasLt", "cublas": "libcublas", "cudnn": "libcudnn", "cufft": "libcufft", "cusparseLt": "libcusparseLt",
    "cusparse": "libcusparse", "nccl": "libnccl", "pnccl": "libnccl", "nvrtc": "libnvrtc", "cuFile": "libcufile",
    "cupti": "libcupti", "nvshmem": "libnvshmem_host", "cusolver": "libcusolver", "cuda": "libcudart", "__cuda": "libcudart",
}  # fmt: skip
FAIL = "movl $35, %eax\n ret\n"
SUCCEED = "xorl %eax, %eax\n ret\n"
SPECIAL = {
    "cudaGetErrorString": "lea message(%rip), %rax\n ret\n",
    "cudaGetErrorName": "lea message(%rip), %rax\n ret\n",
    "cudaStreamIsCapturing": "movl $0, (%rsi)\n" + SUCCEED,
    "cudaStreamIsCapturing_ptsz": "movl $0, (%rsi)\n" + SUCCEED,
    "cudaGetDeviceCount": "movl $0, (%rdi)\n movl $100, %eax\n ret\n",
    "cudaGetLastError": SUCCEED,
    "cudaPeekAtLastError": SUCCEED,
}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def needed_libraries(objects, present):
    """Names of the libraries that must be made, in the order they are first asked for."""
    names = {}
    for path in objects:
        for name in re.findall(r"NEEDED.*\[(.+?)\]", output("readelf", "-dW", path)):
            if MISSING.match(name) and name not in present:
                names[name] = True
    return list(names)


def version_owners(path):
    """Which library each symbol version that this object asks for comes from."""
    owners, library = {}, None
    for line in output("readelf", "-VW", path).splitlines():
        if found := re.search(r"File: (\S+)", line):
            library = found.group(1)
        if (found := re.search(r"Name: (\S+)\s+Flags", line)) and library:
            owners[found.group(1)] = library
    return owners


def wanted_symbols(objects, libraries):
    """{library: {(symbol, version or None)}}."""
    wanted, loose, defined = collections.defaultdict(set), set(), set()
    for path in objects:
        owners = version_owners(path)
        for line in output("nm", "-D", "--undefined-only", path).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, version = symbol.partition("@")
            version = version.lstrip("@")
            if version in owners:
                wanted[owners[version]].add((name, version))
            elif not version and kind == "U":
                loose.add(name)
        defined |= {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", path).splitlines()}
    for name in loose - defined:
        prefix = next((p for p in sorted(PREFIXES, key=len, reverse=True) if name.startswith(p)), None)
        for library in libraries:
            if prefix and library.startswith(PREFIXES[prefix] + ".so"):
                wanted[library].add((name, None))
    return wanted


def build(library, symbols, folder):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        text, versions = ['.text\nmessage: .asciz "no CUDA (stub)"\n'], collections.defaultdict(list)
        for name, version in sorted(symbols, key=str):
            text.append(f".globl {name}\n.type {name}, @function\n{name}: {SPECIAL.get(name, FAIL)}")
            versions[version].append(name)
        text.append('.section .note.GNU-stack, "", @progbits\n')
        (scratch / "stub.S").write_text("".join(text))
        command = ["gcc", "-shared", "-nostdlib", "-o", folder / library, f"-Wl,-soname,{library}", scratch / "stub.S"]
        named = {v: names for v, names in versions.items() if v}
        if named:
            script = "".join(f"{v} {{ global: {' '.join(n + ';' for n in names)} }};\n" for v, names in named.items())
            (scratch / "versions").write_text(script)
            command.append(f"-Wl,--version-script={scratch / 'versions'}")
        subprocess.run(command, check=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    objects = [*folder.glob("*.so"), *folder.parent.glob("_C*.so")]
    libraries = needed_libraries(objects, {p.name for p in folder.iterdir()})
    wanted = wanted_symbols(objects, libraries)
    for library in libraries:
        build(library, wanted[library], folder)
        print(library, len(wanted[library]), "functions")


if __name__ == "__main__":
    main()
