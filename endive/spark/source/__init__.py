"""The data source `endive`: tables of a catalog on Spark. The public names are in `endive.spark`."""
