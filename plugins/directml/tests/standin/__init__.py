"""Windows' DirectML.dll, d3d12.dll and dxgi.dll, as far as their documentation says."""
