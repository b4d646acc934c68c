print("module")
